from trial.named.conftest import trial as trial
