//! The slot of a key in a cluster: CRC-16 (XMODEM) of what is between the first braces, or of all of it.

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of `key`.
pub(super) fn of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let inside = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
    match inside.and_then(|rest| Some((rest, rest.iter().position(|byte| *byte == b'}')?))) {
        Some((rest, close)) if close > 0 => &rest[..close],
        _ => key,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8).to_be_bytes()[1] ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut at: usize = 0;
    while at < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(of(b"foo"), 12_182);
        assert_eq!(of(b"{user1000}.following"), of(b"{user1000}.followers"));
        assert_eq!(of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(of(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
        assert_eq!(of(b"foo{bar}{zap}"), of(b"bar"));
    }
}
