import cProfile,pstats,sys
import numpy as np
np.seterr(all="ignore")
from t2 import delta
p=cProfile.Profile(); p.enable(); delta(.01,.8,20,2.557,True); p.disable()
pstats.Stats(p).sort_stats("tottime").print_stats(14)
