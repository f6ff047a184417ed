//! The fields of queries and forms: `application/x-www-form-urlencoded`.

use percent_encoding::percent_decode;

use crate::model::Invalid;

/// Reads the fields, in their order.
///
/// # Errors
/// A name or a value is not in UTF-8. Such bytes are not replaced, because the result could be a different lock's name.
pub(super) fn fields(encoded: &[u8]) -> Result<Vec<(String, String)>, Invalid> {
    encoded.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(field).collect()
}

fn field(encoded: &[u8]) -> Result<(String, String), Invalid> {
    let end = encoded.iter().position(|byte| *byte == b'=').unwrap_or(encoded.len());
    let (name, value) = (&encoded[..end], encoded.get(end + 1..).unwrap_or_default());
    let as_sent = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let known = text(name).ok_or_else(|| Invalid::new(&as_sent(name), "a name in UTF-8", as_sent(name)))?;
    let value = text(value).ok_or_else(|| Invalid::new(&known, "in UTF-8", as_sent(value)))?;
    Ok((known, value))
}

fn text(encoded: &[u8]) -> Option<String> {
    let blanks: Vec<u8> = encoded.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    String::from_utf8(percent_decode(&blanks).collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields are decoded as browsers encode them. Bytes that are no UTF-8 are refused, under the name of their field.
    #[test]
    fn fields_are_decoded_strictly() {
        let read = fields(b"lock=a%2Fb+c&&why=&prefix&a%3D=z%C3%B6=%EF%BF%BD").expect("read");
        let expected = [("lock", "a/b c"), ("why", ""), ("prefix", ""), ("a=", "z\u{f6}=\u{fffd}")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for (encoded, refused) in [
            ("rows=1&lock=a%ff", "lock: in UTF-8, got a%ff"),
            ("lock=%C3", "lock: in UTF-8, got %C3"),
            ("%ff=1", "%ff: a name in UTF-8, got %ff"),
        ] {
            assert_eq!(fields(encoded.as_bytes()).expect_err(encoded).to_string(), refused);
        }
    }
}
