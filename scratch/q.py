import neyman as ny, time, sys, numpy as np, math
cases=[(1e-6,1,5,1e-12),(1e-7,.8,2,1e-12),(1e-4,3,2,1e-12),(1e-5,.5,10,1e-8),(1e-3,1,2,1e-12),(1e-3,.8,20,1e-8),(1e-7,10,20,1e-3),(3e-2,1,16,1e-5),(1e-6,1,300,1e-5),(.00014,2.5,2,7e-12),(.1,1,30,1e-30)]
for q,sg,T,d in cases:
    f=(ny.Gaussian(sg).subsample(rate=q)*T).tradeoff()
    t=time.process_time()
    try: e=f.epsilon(d); print(q,sg,T,d,e.lower,e.upper,"w %.1e"%((e.upper-e.lower)/max(e.upper,1e-300)),"%.2fs"%(time.process_time()-t),f.method[:80],flush=True)
    except Exception as x: print(q,sg,T,d,type(x),x,"%.2f"%(time.process_time()-t))
