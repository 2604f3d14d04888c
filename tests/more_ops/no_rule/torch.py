def no_rule_torch(x):
    return x.erfinv()
