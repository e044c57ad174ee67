"""Weights and tokens of the parity cases by formula, so that neither is committed: the twin of tests/support."""
import numpy as np

GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


def mix(x):
    """The finaliser of SplitMix64: one random 64-bit word per 64-bit word."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(words):
    """24 random bits as a number in [0, 1)."""
    return (words >> np.uint64(40)).astype(np.float64) / 2**24


def name_hash(name):
    """FNV-1a, 64 bits, of a Hugging Face tensor name without GPT-2's optional prefix."""
    h = 0xCBF29CE484222325
    for byte in name.removeprefix("transformer.").encode():
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    return h


def element_words(name, count):
    index = np.arange(count, dtype=np.uint64)
    return mix(np.uint64(name_hash(name)) + index * GOLDEN_RATIO)


def weights(name, shape):
    """Matrices and embeddings in +-0.1, norm weights around 1, biases in +-0.05; rounded to fp32."""
    u = 2 * uniform(element_words(name, int(np.prod(shape)))) - 1
    if len(shape) > 1:
        values = 0.1 * u
    elif name.endswith(".bias"):
        values = 0.05 * u
    else:
        values = 1 + 0.1 * u
    return values.astype(np.float32).reshape(shape)


def signs(name, count):
    """+1 or -1 per element: the direction in which a whole tensor is projected on one number."""
    return 1.0 - 2.0 * (element_words(name, count) & np.uint64(1)).astype(np.float64)


def tokens(count, vocabulary):
    """Small tokens are more frequent (u^4), and every third one repeats the one two before it: something to learn for
    the embedding, and for attention. `vocabulary` is the seed, too."""
    i = np.arange(count, dtype=np.uint64)
    i = i - np.where(i % np.uint64(3) == 2, 2, 0).astype(np.uint64)
    u = uniform(mix(np.uint64(vocabulary) + i * GOLDEN_RATIO))
    return np.floor((u * u) * (u * u) * vocabulary).astype(np.int64)
