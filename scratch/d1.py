import neyman as ny, numpy as np, math, time
import neyman.profiles.few_steps as F
from neyman.profiles import contour_line as CL
o=F.FewSteps.__init__
def init(self,*a):
    t=time.process_time(); o(self,*a); print("table removed",a[1],"range",a[2:4],"depth",a[4],"%.2fs"%(time.process_time()-t), self.panels, self._first,self._last)
F.FewSteps.__init__=init
f=(ny.Gaussian(1).subsample(rate=1e-6)*5).tradeoff()
print(f.epsilon(1e-12))
for c in f.directions:
    from neyman.profiles import select
    p=select(c); print([ (type(x).__name__,x.method,getattr(x,'_release',None)) for x in p._built])
