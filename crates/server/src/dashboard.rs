//! The dashboard's files, inside the binary. A stub: the router asks for them here.

/// The file at `path`: its content type and its bytes.
pub(crate) fn asset(path: &str) -> Option<(&'static str, &'static [u8])> {
    match path {
        "/" => Some(("text/html; charset=utf-8", include_bytes!("dashboard/index.html"))),
        _ => None,
    }
}
