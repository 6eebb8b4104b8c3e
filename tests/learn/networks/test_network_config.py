"""Settings of networks: their defaults, their checks, and that they are there without torch."""

import subprocess
import sys

import pytest

from ludus import options
from ludus.errors import ConfigError
from ludus.learn.networks.config import NetworkConfig


def test_settings_are_read_without_loading_torch():
    code = "import sys, ludus.learn.networks.config, ludus.learn.ops; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "False"


def test_texts_become_settings():
    config = options.replace(NetworkConfig(), {"hidden": "256,128", "shared": "yes", "recurrent": "gru"})
    assert config == NetworkConfig(hidden=(256, 128), shared=True, recurrent="gru")


@pytest.mark.parametrize(
    "changes",
    [{"encoder": "natur"}, {"activation": "sine"}, {"recurrent": "rnn"}, {"hidden": "64,0"}, {"recurrent_size": 0}],
)
def test_what_no_network_can_be_is_refused(changes):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        options.replace(NetworkConfig(), changes)


def test_every_setting_has_its_help():
    assert all(option.help for option in options.describe(NetworkConfig))
