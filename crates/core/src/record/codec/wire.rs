//! Numbers, byte strings and times on the wire. Knows no record; every length is checked before it is believed.
//!
//! Public for stores that keep more than whole records.

use bytes::{Buf, Bytes};

use super::CodecError;
use crate::clock::Timestamp;

const SHORT: CodecError = CodecError::Damaged("too short");

/// Writes fields one after the other.
#[derive(Debug)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// An empty one with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// One byte as it is.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// LEB128: seven bits a byte, low ones first.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    /// `to` as a distance from `from`, zigzag: near times are short, and any two times can be written.
    pub fn delta(&mut self, from: Timestamp, to: Timestamp) {
        let distance = to.as_millis().wrapping_sub(from.as_millis()).cast_signed();
        self.number((distance << 1 ^ distance >> 63).cast_unsigned());
    }

    /// Their length, and the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    /// 0 for nothing, else one more than the length, and the bytes.
    pub fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.number(0),
            Some(bytes) => {
                self.number(bytes.len() as u64 + 1);
                self.raw(bytes);
            }
        }
    }

    /// What was written so far.
    pub fn written(&self) -> &[u8] {
        &self.0
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads fields one after the other.
#[derive(Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// Reads `bytes` from their beginning.
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, CodecError> {
        self.0.try_get_u8().map_err(|_| SHORT)
    }

    /// `N` bytes as they are.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let mut array = [0; N];
        self.0.try_copy_to_slice(&mut array).map_err(|_| SHORT)?;
        Ok(array)
    }

    /// A number in its one spelling.
    pub fn number(&mut self) -> Result<u64, CodecError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(CodecError::Damaged("number"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                // One number has one spelling: a padded one was not written by us.
                let padded = byte == 0 && shift > 0;
                return if padded { Err(CodecError::Damaged("number")) } else { Ok(number) };
            }
        }
        Err(CodecError::Damaged("number"))
    }

    /// A time at a distance from `from`.
    pub fn delta(&mut self, from: Timestamp) -> Result<Timestamp, CodecError> {
        let zigzag = self.number()?;
        let distance = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        Ok(Timestamp::from_millis(from.as_millis().wrapping_add(distance)))
    }

    /// Bytes with their length before them, `max` at most.
    pub fn bytes(&mut self, max: usize) -> Result<Bytes, CodecError> {
        let len = self.number()?;
        self.take(len, max)
    }

    /// The same, or nothing.
    pub fn optional(&mut self, max: usize) -> Result<Option<Bytes>, CodecError> {
        match self.number()? {
            0 => Ok(None),
            len => self.take(len - 1, max).map(Some),
        }
    }

    fn take(&mut self, len: u64, max: usize) -> Result<Bytes, CodecError> {
        let len = usize::try_from(len).map_err(|_| SHORT)?;
        if len > max {
            return Err(CodecError::Damaged("length"));
        }
        self.raw(len)
    }

    /// That many bytes as they are.
    pub fn raw(&mut self, len: usize) -> Result<Bytes, CodecError> {
        if len > self.0.len() { Err(SHORT) } else { Ok(self.0.split_to(len)) }
    }

    /// What was not read yet.
    pub fn rest(self) -> Bytes {
        self.0
    }

    /// Refuses bytes that are left over.
    pub fn end(&self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Damaged("trailing bytes")) }
    }
}
