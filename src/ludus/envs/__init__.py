"""Worlds by name: Gymnasium, ALE, EnvPool, PettingZoo, MPE2 and the user's own, behind one contract (`core.Worlds`)."""
