//! Decodes values from bincode's format without allocating memory for announced content that is missing.
//!
//! bincode's own implementation for serde allocates as much memory as a length claims before it checks that the bytes
//! exist: ten bytes would cost 64 MiB. This implementation reads the same format. It copies a text only if its bytes
//! exist, and gives serde no size hints.

use bincode::config::Config;
use bincode::de::read::{Reader, SliceReader};
use bincode::de::{BorrowDecode, BorrowDecoder, Decode, Decoder, DecoderImpl};
use bincode::error::DecodeError;
use serde::de::{DeserializeOwned, DeserializeSeed, Error, IntoDeserializer, Visitor};
use serde::de::{Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess};

/// Decodes a value that must use all bytes.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8], options: impl Config) -> Result<T, DecodeError> {
    let mut decoder = DecoderImpl::new(SliceReader::new(bytes), options, ());
    let value = T::deserialize(Payload(&mut decoder))?;
    let mut left = 0;
    while decoder.reader().peek_read(left + 1).is_some() {
        left += 1;
    }
    if left == 0 { Ok(value) } else { Err(DecodeError::custom(format!("{left} bytes too many"))) }
}

/// The bytes that are left to read.
struct Payload<'a, D>(&'a mut D);

/// A number of values in sequence.
struct Several<'a, D> {
    decoder: &'a mut D,
    left: usize,
}

impl<'de, D: BorrowDecoder<'de>> Several<'_, D> {
    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(Payload(&mut *self.decoder)).map(Some)
    }
}

impl<'de, D: BorrowDecoder<'de>> SeqAccess<'de> for Several<'_, D> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        self.next(seed)
    }
}

impl<'de, D: BorrowDecoder<'de>> MapAccess<'de> for Several<'_, D> {
    type Error = DecodeError;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        self.next(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(Payload(&mut *self.decoder))
    }
}

impl<'de, D: BorrowDecoder<'de>> EnumAccess<'de> for Payload<'_, D> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), DecodeError> {
        let variant = u32::decode(self.0)?;
        let value = seed.deserialize(IntoDeserializer::<DecodeError>::into_deserializer(variant))?;
        Ok((value, self))
    }
}

impl<'de, D: BorrowDecoder<'de>> VariantAccess<'de> for Payload<'_, D> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}

/// Methods for values of a fixed type, as bincode writes them.
macro_rules! plain {
    ($($deserialize:ident $visit:ident)*) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            visitor.$visit(Decode::decode(self.0)?)
        })*
    };
}

impl<'de, D: BorrowDecoder<'de>> Deserializer<'de> for Payload<'_, D> {
    type Error = DecodeError;

    plain! {
        deserialize_bool visit_bool
        deserialize_u8 visit_u8
        deserialize_u16 visit_u16
        deserialize_u32 visit_u32
        deserialize_u64 visit_u64
        deserialize_u128 visit_u128
        deserialize_i8 visit_i8
        deserialize_i16 visit_i16
        deserialize_i32 visit_i32
        deserialize_i64 visit_i64
        deserialize_i128 visit_i128
        deserialize_f32 visit_f32
        deserialize_f64 visit_f64
        deserialize_char visit_char
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::custom("the format does not say what follows"))
    }

    serde::forward_to_deserialize_any! { identifier ignored_any }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_str(<&'de str>::borrow_decode(self.0)?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_bytes(<&'de [u8]>::borrow_decode(self.0)?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match u8::decode(self.0)? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            other => Err(DecodeError::custom(format!("an option of kind {other}"))),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let len = usize::decode(self.0)?;
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(Several { decoder: self.0, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let left = usize::decode(self.0)?;
        visitor.visit_map(Several { decoder: self.0, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
