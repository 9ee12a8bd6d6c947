"""The parts of a store, such as training and test, made before windows are."""
