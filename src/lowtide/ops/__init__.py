"""Recurrent stacks as differentiable PyTorch operators: native kernels, vendor path, plain reference."""
