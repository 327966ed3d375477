import sys
a=[float(x) for x in sys.argv[1].split(",")]
import numpy as np, math
np.seterr(all="ignore"); np.set_printoptions(linewidth=250,precision=1)
import neyman.profiles.log_sum_density as L
o=L._tabulated
def tab(steps,low,half,panels,prior,row):
    k=np.arange(L.DEGREES); x=np.cos(math.pi*(k+.5)/L.DEGREES)
    mid=low+half*(2*np.arange(panels)+1)
    lh,e=row((mid[:,None]+half*x).ravel())
    print(steps[0][1],"half",half,"panels",panels)
    print("row err",e.reshape(panels,-1).max(1))
    t=o(steps,low,half,panels,prior,row); print("error",t.error); return t
L._tabulated=tab
from t2 import delta
print(delta(a[0],a[1],int(a[2]),a[3],True)[:3])
f=delta(a[0],a[1],int(a[2]),a[3],True)[3]
h=f._density; w=2*h.half
print("last",f._last,h.panels,"delta lower at edges",f._delta[0][f._first:f._last+1][-8:],"upper",f._delta[1][-12:], "peaks",h.peaks[1+f._last:-1]+math.log(w)+f._edges[f._last+1:], "right",f._log_right(f._edges[-1]))
