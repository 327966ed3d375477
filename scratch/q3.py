import neyman as ny, time, sys, numpy as np, math
from neyman.profiles.contour import contour_profile
from neyman.profiles.few_steps import FewStepsProfile
for q,sg,T,d in ((.03,1,16,1e-5),(.1,1,8,1e-8),(.01,1,8,1e-8),(.01,.5,12,1e-6),(.1,2,32,1e-10),(.3,1,4,1e-5),(.001,1,32,1e-6)):
    f=(ny.Gaussian(sg).subsample(rate=q)*T).tradeoff()
    for c in f.directions:
        for cls in (contour_profile,FewStepsProfile):
            p=cls(c); t=time.process_time()
            e=p.epsilon_near(math.log(d)); lo,hi=p.log_delta(e)
            print(q,sg,T,d,cls.__name__,"%.8f w %.1e %.2fs"%(e,hi-lo,time.process_time()-t),p.method,flush=True)
