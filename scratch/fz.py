import numpy as np, math, time, sys
import neyman as ny
from neyman.profiles.few_steps import FewStepsProfile
from neyman.profiles.convolution import dots_profile
rng=np.random.default_rng(int(sys.argv[1])); bad=0; ws=[]
for i in range(int(sys.argv[2])):
    k=rng.integers(1,3); f=None; desc=[]
    for _ in range(k):
        q=float(10**rng.uniform(-7,-.5)); sg=float(10**rng.uniform(-.5,1)); n=int(rng.integers(1,8)); desc.append((q,sg,n))
        g=ny.Gaussian(sg).subsample(rate=q)*n
        f=g if f is None else f+g
    T=sum(d[2] for d in desc)
    if T<2: continue
    f=f.tradeoff()
    d=float(rng.uniform(-40,-3))
    for c in f.directions:
        try:
            t=time.process_time()
            p=FewStepsProfile(c); e=p.epsilon_near(d)
            lo,hi=p.log_delta(e); t=time.process_time()-t
            q=dots_profile(c); a,b=q.log_delta(e)
            ok = lo<=b+1e-12 and a<=hi+1e-12
            bad+=not ok; ws.append(hi-lo)
            print("OK " if ok else "BAD", desc, "rem" if c.parts[0][0].removed else "add","eps %.3e ld %.2f few %.1e dots %.1e %.2fs"%(e,d,hi-lo,b-a,t), "target diff %.1e"%(hi-d),flush=True)
        except Exception as x:
            print("EXC",desc,type(x),x,flush=True)
print("bad",bad,np.quantile(ws,[.5,.9,.99]))
