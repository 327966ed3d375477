import numpy as np, math
np.seterr(all="ignore")
import neyman.profiles.log_sum_density as L
st=L.Step(.01,1.0)
h=L.density_of_step(st,-14,5,.3)
print(h.panels,h.error, h.peaks[:3],h.peaks[-3:])
orig=L._tabulated
def tab(steps,low,half,panels,outside,row):
    k=np.arange(L.DEGREES); x=np.cos(math.pi*(k+.5)/L.DEGREES)
    mid=low+half*(2*np.arange(panels)+1)
    lh,e=row((mid[:,None]+half*x).ravel())
    e=e.reshape(panels,-1)
    print("row err",e.max(1))
    t=orig(steps,low,half,panels,outside,row); print("err",t.error); print(outside); return t
L._tabulated=tab
d=L.convolve(h,h,-6,4,.3)
print("----")
o2=L._settled
def se(steps,half,middle,tops,slope,scale,prior):
    print("steps",len(middle),"half",half,"mid",np.round(middle,2)); print("tops-slope",np.round(tops,1),np.round(slope,1)); print("prior",np.round(prior,1))
    for rho in L.ELLIPSES:
        angle=half*(rho-1/rho)/2; major=half*(rho+1/rho)/2
        print(rho,round(angle,2),"K",np.round(L.log_growth(steps,angle,middle+major),1), "share",round(math.log(4)-(L.DEGREES-1)*math.log(rho)-math.log(rho-1),1))
    r=o2(steps,half,middle,tops,slope,scale,prior); print(r); return r
L._settled=se
d=L.convolve(h,h,-6,4,.3)
