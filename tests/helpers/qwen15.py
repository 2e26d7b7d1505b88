"""Qwen1.5-0.5B without its head, as transformers of 2025 run it in eager PyTorch: operation by operation."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu


class Norm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden))

    def forward(self, x):
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def turned(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Layer(nn.Module):
    """A layer of Qwen1.5 with rotary positions, and operands of attention made contiguous."""

    def __init__(self, hidden, ffn, head):
        super().__init__()
        self.head = head
        self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out, self.gate, self.up = (nn.Linear(hidden, n, bias=False) for n in (hidden, ffn, ffn))
        self.down = nn.Linear(ffn, hidden, bias=False)
        self.before, self.after = Norm(hidden), Norm(hidden)

    def forward(self, x, cos, sin):
        y = self.before(x)
        q, k, v = (
            part(y).view(*x.shape[:-1], -1, self.head).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        q, k = (z * cos + turned(z) * sin for z in (q, k))
        y = scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous(), is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(x.shape))
        y = self.after(x)
        return x + self.down(silu(self.gate(y)) * self.up(y))


class Qwen(nn.Module):
    def __init__(self, hidden=1024, ffn=2816, head=64, layers=24, vocab=151936):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, hidden), head
        self.layers = nn.ModuleList(Layer(hidden, ffn, head) for _ in range(layers))
        self.norm = Norm(hidden)

    def forward(self, tokens):
        x = self.embed(tokens)
        steps = torch.arange(tokens.shape[1])[None, None]
        angles = (torch.empty(1, self.head // 2, 1) @ steps.float()).transpose(1, 2)
        both = torch.cat((angles, angles), -1)
        cos, sin = ((y * 1.0).to(x.dtype)[:, None] for y in (both.cos(), both.sin()))
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def qwen(layers=24):
    with torch.device("meta"):
        return Qwen(layers=layers).to(torch.bfloat16), (torch.zeros(16, 559, dtype=torch.long),)
