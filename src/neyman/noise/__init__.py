"""Draw integer noise exactly: without floating-point arithmetic, and without a seed.

`SecureBits` supplies words of the operating system's randomness through a stream cipher.
`discrete_gaussian`, `discrete_laplace`, and `rounded_gaussian` turn words of any `Bits` into noise
with exactly the stated probabilities. They use look-up tables for common scales
(`neyman.noise.lookup_table`), strips for larger scales (`neyman.noise.large_gaussian`), and
rejection for few draws and large Laplace scales (`neyman.noise.rejection`). Real noise is drawn bit
by bit and rounded to a grid (`neyman.noise.real_noise`). A torch tensor is filled on its own device
(`neyman.noise.tensor_noise`). If the noise does not fit in memory, draw it in parts: the table of a
scale is stored, and a part needs little memory besides its own array.

**Time is not hidden.** The random bits decide which table entries are read, some draws need more
bits than others, and rejection repeats some draws. The noise does not depend on the data, so
neither do these effects. But an attacker who learns something about the noise learns as much about
the exact value. A process that shares the processor's caches can see which parts of a table are
read during the draws. An attacker who sees only complete releases sees one duration for all
numbers, dominated by reading the data and writing the files. So draw noise on a machine without
other people's programs. Do not put a sampler behind a service that answers one number at a time and
whose answers can be timed.
"""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
