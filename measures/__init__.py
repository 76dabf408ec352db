"""Pure arithmetic that several parts share: histograms, folding, divergences, tests. No I/O."""
