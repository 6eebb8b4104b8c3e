from remote.conftest import trial as trial
