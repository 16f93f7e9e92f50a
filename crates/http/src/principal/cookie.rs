//! One cookie out of all that a request brings.

use http::HeaderMap;
use http::header::COOKIE;

use super::Missing;

/// The value of the cookie `name`. Twice the same name is refused: which of them counts is anybody's guess.
pub(super) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a [u8]>, Missing> {
    let mut values = headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=')?;
            (&pair[..at] == name.as_bytes()).then(|| &pair[at + 1..])
        });
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Missing::Repeated);
    }
    Ok(Some(value).filter(|value| !value.is_empty()))
}
