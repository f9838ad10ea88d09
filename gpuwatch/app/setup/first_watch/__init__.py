"""`gpuwatch init`: the questions, the figures beside them, and the files that it writes."""
