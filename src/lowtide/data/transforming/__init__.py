"""The transforms themselves, one a file, and how they are asked for, fitted and stored; the door is `transforms.py`."""
