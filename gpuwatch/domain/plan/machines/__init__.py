"""Machines that gpuwatch did not rent: what their GPUs do, what idle hours cost, which work a smaller card would do."""
