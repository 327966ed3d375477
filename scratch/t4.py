import sys; sys.argv2=sys.argv[1]
import numpy as np, math
np.seterr(all="ignore"); np.set_printoptions(linewidth=200)
import neyman.profiles.log_sum_density as L
o2=L._settled
def se(steps,half,middle,tops,slope,scale,prior):
    print("steps",len(middle),"half",half,"mid",np.round(middle,2)); print("tops",np.round(tops,1)); print("slope*half",np.round(slope*half,1)); print("prior",np.round(prior,1))
    for rho in L.ELLIPSES[-2:]:
        angle=half*(rho-1/rho)/2; major=half*(rho+1/rho)/2
        print(rho,round(angle,2),"K",np.round(L.log_growth(steps,angle,middle+major),1), "share",round(math.log(4)-(L.DEGREES-1)*math.log(rho)-math.log(rho-1),1))
    print("prior",np.round(prior,1)); r=o2(steps,half,middle,tops,slope,scale,prior); print(r); return r
L._settled=se
from t2 import delta
a=[float(x) for x in sys.argv2.split(",")]; print(delta(a[0],a[1],int(a[2]),a[3],True)[:3])
