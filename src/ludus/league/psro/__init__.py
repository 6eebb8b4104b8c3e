"""Policy-space response oracles: best responses, one after the other, to a mixture of those before.

https://arxiv.org/abs/1711.00832
"""
