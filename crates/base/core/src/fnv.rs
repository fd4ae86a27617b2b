//! FNV-1a, the hash of the Go kubelet for containers, static pods and checkpoints.

const FNV32_OFFSET: u32 = 0x811c_9dc5;
const FNV32_PRIME: u32 = 0x0100_0193;
const FNV128_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV128_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// FNV-1a with 32 bits.
#[must_use]
pub fn fnv1a_32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(FNV32_OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(FNV32_PRIME))
}

/// FNV-1a with 128 bits, as 32 lower-case hex digits.
#[must_use]
pub fn fnv1a_128_hex(bytes: impl IntoIterator<Item = u8>) -> String {
    let hash = bytes
        .into_iter()
        .fold(FNV128_OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(FNV128_PRIME));
    format!("{hash:032x}")
}
