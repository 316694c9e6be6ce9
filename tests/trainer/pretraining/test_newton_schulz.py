"""Muon's orthogonalization in float32 equals torch's own, and Muon uses it."""

import pytest
import torch
from torch.optim import _muon

from trainer.pretraining.newton_schulz import orthogonalize, use_float32

ARGUMENTS = ((3.4445, -4.775, 2.0315), 5, 1e-7)  # torch's defaults
IN_BFLOAT16 = _muon._zeropower_via_newtonschulz


@pytest.mark.parametrize("shape", [(24, 64), (64, 24), (32, 32)])
def test_it_differs_from_torchs_own_by_bfloat16s_rounding_only(shape: tuple[int, int]) -> None:
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = IN_BFLOAT16(gradient, *ARGUMENTS).float()
    found = orthogonalize(gradient, *ARGUMENTS)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=0.02)
    assert torch.linalg.svdvals(found).sub(1).abs().max() < 0.5
    assert torch.equal(orthogonalize(torch.zeros(shape), *ARGUMENTS), torch.zeros(shape))


def test_muon_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", IN_BFLOAT16)  # put back afterwards
    use_float32()
    weights = torch.nn.Parameter(torch.zeros(24, 64))
    gradient = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    weights.grad = gradient.clone()
    torch.optim.Muon([weights], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False).step()
    assert torch.equal(weights.detach(), -orthogonalize(gradient, *ARGUMENTS))
