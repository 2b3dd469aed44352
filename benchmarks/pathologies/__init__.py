"""Small programs with one fault each and a healthy twin, to hold the diagnosis to the truth.

`python -m benchmarks.pathologies.record -o DIR` measures every pair, interleaved and without the
profiler, and records both variants; `python -m benchmarks.pathologies.score DIR` diagnoses the
recordings and compares what each finding promised with what removing the fault was measured to
save. Programs are in `programs/`, one file a family; `registry` lists them.
"""
