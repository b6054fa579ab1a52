"""`vgpuctl support-bundle`: what is read of a node (`parts`, `machine`), what is kept out of it
(`privacy`), and the archive it goes into (`archive`). No part keeps another from being packed."""
