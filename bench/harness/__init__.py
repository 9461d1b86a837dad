"""What the benches share: servers on a core of their own (`servers`), claims and their file (`results`), drawings
(`plots`). Python's standard library alone."""
