import math, time, sys
import numpy as np
from neyman.profiles.few_steps import FewSteps
from neyman.profiles.log_sum_density import Step
from scipy.special import log_ndtr
def delta(q,sg,T,eps,removed):
    st=Step(q,1/sg)
    A=T*st.log_total
    s=A+eps if removed else A-eps
    tau=math.log(math.expm1(s))
    z=(tau-st.mean)/st.distance
    if removed:
        d1=st.log_odds+log_ndtr(st.distance-z); depth=float(max(d1,-90)-5)
    else:
        c=math.log(math.expm1(s/(1.5*T))); depth=T*float(log_ndtr((c-st.mean)/st.distance))+math.log(s/3)
    t0=time.process_time()
    f=FewSteps([(st,T)],removed,tau,tau,depth)
    lo,hi=f.log_value(np.array([tau]))
    c=-A if removed else -s
    return lo[0]+c,hi[0]+c,time.process_time()-t0,f
if __name__=="__main__":
  np.seterr(all="ignore")
  for (q,sg,T,eps,ref) in ((1e-7,1.5,5,1e-5,9.9127607e-19),(.001,3,5,.0113,6.5468402e-17),(.01,1,3,.5,6.8503070e-7),(.01,.8,20,2.557,1.00256e-8),(.001,3,20,.0113,1.20475e-12),(1.4e-4,2.5,2,.002,3.241434299465e-16),(.01,1,2,.5,4.497212183988e-07),(.1,3,2,.3,5.145235887348e-07),(.001,.5,100,2.108,1.00142e-5),(1e-6,10,300,2e-4,None)):
    lo,hi,t,f=delta(q,sg,T,eps,True)
    print(q,sg,T,eps,"%.12e logwidth %.1e"%(math.exp(lo),hi-lo),"ref ratio", (math.exp(lo)/ref-1) if ref else None,"%.3fs"%t,f.panels,"err %.0e"%np.median(f._density.error),f._first,f._last,flush=True)
