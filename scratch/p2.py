import cProfile,pstats,sys
import numpy as np, neyman as ny
a=[float(x) for x in sys.argv[1].split(",")]
f=(ny.Gaussian(a[1]).subsample(rate=a[0])*int(a[2])).tradeoff()
p=cProfile.Profile(); p.enable(); print(f.epsilon(a[3])); p.disable()
pstats.Stats(p).sort_stats("cumtime").print_stats(38)
