"""The points of IQ3_S: 512 combinations of the magnitudes of four adjacent weights, from ggml-common.h."""

import base64

import numpy as np
import torch

#: Two points in three bytes, little-endian; of each four codes of 3 bits, the first one in the lowest bits.
_PACKED = (
    "ABAAAlAAB4AACaAADOAAEBABFbABICACJXACKbACMCADOcADPwAEQSAERIAESdAEUDAFV5AFXUAGcVAHegAIgVAIh4AIi+AIkVAJmMAJolAKp5AK"
    "q4ALuzAMydAM0CAN2bAN3kAO6KAO95AP/QAQC/EQEUERGgESI5ESOCEURAEVUmEVWxEWZXEWdrEXhpEYi5EZqpEbwCEcxAEd0mEd24Ee7AEgASIg"
    "BIIgCbIgDfIgECIhGcIhHsIiLhIjOgIkQTIkRoIkTBIlWLIlYYImaoInfgIoitIojwIplKIpoDIqrQIruhIsxHIsyLIs0XIt2MIt4SIv+DIwBaMw"
    "DJMxGyMyJoMyLBM0SLM0UYM1WpM2kEM5l0M6phM8w4M8yhM93RM+8oM/ABRAA1RAB4RACsRADhRBE3RBGKRBITRCJYRCKnRDOLRDPQREQoRES/RE"
    "UlRFWcRFYpRGgURIhxRJk4RJnxRKq/RKucRLwCRMxZRM0kRN2bRN4oRO9hRQBwVRE6VRHRVSOtVTRJVUUvVVYLVWeAVYgnVYkdVasVVcyWVd2DVe"
    "6CVgCbZgDfZgEpZhG9ZhIkZiJ5ZiM5ZjQTZkRcZkUTZlYAZneuZngKZokKZpnIZqwYZszBZt03Zt2BZu43Zu7bZvA5dwDidxGadyMEdzQYd0Sld1"
    "Wkd2brd3jhd6wTd80Cd93QeABKiAEEiBF6iBIYiCOCiER5iESyiFWNiFY5iGbRiIg4iIjRiJmwiKryiLuEiMybiM0CiN2diNACmQFPmRIJmTRXmU"
    "USmXi8mZsImczYmd45meAoqgDCqhIEqiJ6qiNsqjQTqkRaqkUaqlegqoiTqpmOqpqyqsx4qs10qu6Vqv+xqwBAuxGmuySmu1abu2oiu8xCu9CbzA"
    "DZzBGwzDQAzFV0zHiszJotzKsozLwMzM0QzOFT3SMg3UQ83VcF3YoJ3cyw3gBH7gEC7hHg7iLC7jQp7kVD7mZR7ohI7ojh7pmJ7qwq7t3b7uAV/w"
    "Cw/xKC/1Yi/4mQ/8"
)


def iq3_codes() -> torch.Tensor:
    """uint8 [512, 4]: code u stands for the magnitude 2 u + 1."""
    pairs = np.frombuffer(base64.b64decode(_PACKED), np.uint8).reshape(-1, 3).astype(np.int32)
    words = pairs[:, 0] | pairs[:, 1] << 8 | pairs[:, 2] << 16
    points = np.stack((words & 0xFFF, words >> 12), axis=1).reshape(-1, 1)
    return torch.from_numpy((points >> np.array([0, 3, 6, 9]) & 7).astype(np.uint8))
