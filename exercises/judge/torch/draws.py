"""Random numbers by seed, stream and counter, as base/random.hpp draws them in C++."""
import math

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix_bits(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def random_bits(seed, stream, counter):
    return mix_bits(mix_bits(mix_bits(seed + GOLDEN & WORD) + (stream + 1) * GOLDEN & WORD) + (counter + 1) * GOLDEN & WORD)


def random_below(most, seed, stream, counter):
    return random_bits(seed, stream, counter) % most


def random_uniform(seed, stream, counter):
    return (random_bits(seed, stream, counter) >> 11) * 2.0**-53


def random_normal(seed, stream, counter):
    u, v = 1.0 - random_uniform(seed, stream, 2 * counter), random_uniform(seed, stream, 2 * counter + 1)
    return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)


def stream_of(name):
    stream = 0xCBF29CE484222325
    for letter in name.encode():
        stream = (stream ^ letter) * 0x100000001B3 & WORD
    return stream


def hash_of_text(text):
    """Of base/random.hpp."""
    found = 0
    for letter in text.encode():
        found = mix_bits(found + letter + 1 & WORD)
    return found
