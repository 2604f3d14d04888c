def reference(x):
    return x * 1
