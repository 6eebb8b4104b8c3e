"""Convolutional networks: layouts of images, the scale of bytes, features and gradients."""

import pytest
import torch
from torch.nn import functional as F

from ludus.errors import ConfigError
from ludus.learn.networks.cnn import ImpalaResNet, NatureCNN, SmallCNN, image_sides

torch.set_num_threads(1)
all_networks = pytest.mark.parametrize("network", [SmallCNN, NatureCNN, ImpalaResNet])


def some_image(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("shape", "sides"),
    [
        ((4, 84, 84), (4, 84, 84)),
        ((84, 84, 3), (3, 84, 84)),
        ((60, 80, 4), (4, 60, 80)),
        ((84, 80), (1, 84, 80)),
        ((7,), None),
        ((2, 4, 84, 84), None),
    ],
)
def test_the_channels_are_found(shape, sides):
    assert image_sides(shape) == sides


@all_networks
def test_bytes_are_taken_as_0_to_1(network):
    cnn, image = network((4, 40, 44)), some_image(3, 4, 40, 44)
    torch.testing.assert_close(cnn(image), cnn(image.float() / 255.0), rtol=1e-4, atol=1e-5)
    assert cnn(image).shape == (3, network.num_features)


@all_networks
def test_the_layout_of_an_image_makes_no_difference(network):
    torch.manual_seed(1)
    first = network((3, 40, 44))
    torch.manual_seed(1)
    last = network((40, 44, 3))
    image = some_image(2, 3, 40, 44)
    torch.testing.assert_close(last(image.permute(0, 2, 3, 1).contiguous()), first(image))


@all_networks
def test_an_image_without_channels_has_one(network):
    torch.manual_seed(1)
    grey = network((40, 40))
    torch.manual_seed(1)
    one = network((1, 40, 40))
    image = some_image(2, 40, 40)
    torch.testing.assert_close(grey(image), one(image.unsqueeze(1)))


@all_networks
def test_gradients_reach_every_weight(network):
    cnn = network((4, 36, 36))
    cnn(some_image(2, 4, 36, 36)).square().sum().backward()
    for name, parameter in cnn.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("network", "strides", "left"), [(SmallCNN, (4, 2), (32, 9, 9)), (NatureCNN, (4, 2, 1), (64, 7, 7))]
)
def test_the_networks_of_papers_are_theirs(network, strides, left):
    cnn, image = network((4, 84, 84)), some_image(2, 4, 84, 84)
    x = image.float() / 255.0
    for number, stride in enumerate(strides, start=1):
        conv = getattr(cnn, f"conv_{number}")
        x = F.relu(F.conv2d(x, conv.weight, conv.bias, stride))
    assert x.shape == (2, *left)
    wanted = F.relu(cnn.dense(x.permute(0, 2, 3, 1).flatten(1)))
    torch.testing.assert_close(cnn(image), wanted, rtol=1e-4, atol=1e-5)


def test_features_begin_on_the_scale_of_the_pixels():
    torch.manual_seed(0)
    for network in (SmallCNN, NatureCNN, ImpalaResNet):
        assert 0.02 < network((4, 84, 84))(some_image(8, 4, 84, 84)).std() < 5.0


@pytest.mark.parametrize(("network", "side"), [(SmallCNN, 20), (NatureCNN, 36)])
def test_images_too_small_for_a_network_are_refused(network, side):
    with pytest.raises(ConfigError, match=f"{network.name}.*impala"):
        network((3, side - 1, 84))
    assert network((3, side, side))(some_image(1, 3, side, side)).shape == (1, network.num_features)
    assert ImpalaResNet((3, 7, 7))(some_image(1, 3, 7, 7)).shape == (1, 256)


@all_networks
def test_what_is_no_image_is_refused(network):
    with pytest.raises(ConfigError, match="mlp"):
        network((5,))


def test_images_are_scaled_by_the_bounds_of_their_spec() -> None:
    planes = torch.randint(0, 2, (2, 4, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    cnn = NatureCNN((4, 36, 36), (0.0, 1.0))
    torch.testing.assert_close(cnn(planes), cnn(planes.float()), rtol=1e-4, atol=1e-5)
    grid = planes * 7 + 3
    cnn = NatureCNN((4, 36, 36), (3.0, 10.0))
    torch.testing.assert_close(cnn(grid), cnn(planes.float()), rtol=1e-4, atol=1e-5)
