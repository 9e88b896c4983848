"""CRC-32 (IEEE 802.3), the values of ``zlib.crc32`` at four times the speed.

Every stored byte is summed several times on its way to three disks, which limits the rate of large batches.
"""

from isal.isal_zlib import crc32

__all__ = ["crc32"]
