import math, time, sys
import numpy as np, mpmath as mp
from neyman.profiles.few_steps import FewSteps, Step
def delta(q,sg,T,eps,removed,span=.0):
    st=[Step(q,1/sg)]*T
    A=math.fsum(s.log_total for s in st)
    s=A+eps if removed else A-eps
    tau=math.log(math.expm1(s))
    t0=time.process_time()
    f=FewSteps(st,removed,tau,tau)
    lo,hi=f.log_value(np.array([tau]))
    c=-A if removed else -s
    return math.exp(lo[0]+c),math.exp(hi[0]+c),time.process_time()-t0,[t.error if t else 0 for t in f._tables]
for (q,sg,T,eps,ref) in ((1e-7,1.5,5,1e-5,9.9127607e-19),(.001,3,5,.0113,6.5468402e-17),(.01,1,3,.5,6.8503070e-7),(.01,.8,20,2.557,1.00256e-8),(.001,3,20,.0113,1.20475e-12),(1.4e-4,2.5,2,.002,None),(.01,1,2,.5,None),(.1,3,2,.3,None)):
    lo,hi,t,e=delta(q,sg,T,eps,True)
    print(q,sg,T,eps,"%.12e rel width %.1e"%(lo,hi/lo-1 if lo else math.inf),"ref ratio", (lo/ref-1) if ref else None,"%.3fs"%t,["%.0e"%x for x in e][-3:],flush=True)
