//! The files that the page loads: one stylesheet, one script and the icon, each under the hash of its content.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;
use sha2::{Digest, Sha256};

/// The stylesheet of all screens.
pub(super) const STYLE: Asset = Asset { kind: "text/css", end: "css", text: include_str!("style.css") };
/// The script of all screens.
pub(super) const SCRIPT: Asset = Asset { kind: "text/javascript", end: "js", text: include_str!("live.js") };
/// The icon of all screens.
pub(super) const ICON: Asset = Asset { kind: "image/svg+xml", end: "svg", text: include_str!("icon.svg") };

/// A file that never changes under its path.
pub(super) struct Asset {
    kind: &'static str,
    end: &'static str,
    pub(super) text: &'static str,
}

impl Asset {
    /// Returns the path, which contains a hash of the content.
    pub(super) fn path(&self) -> String {
        let hash: String = Sha256::digest(self.text).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("/page/{hash}.{}", self.end)
    }
}

/// Returns the routes of all files. Browsers may keep them, because another content has another path.
pub(super) fn routes() -> Router {
    [STYLE, SCRIPT, ICON].into_iter().fold(Router::new(), |routes, asset| {
        let headers = [(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
        routes.route(&asset.path(), get(move || async move { (headers, asset.text) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    /// The files are small, and name no other place.
    #[test]
    fn files_are_small_and_load_nothing() {
        for asset in [STYLE, SCRIPT, ICON] {
            let bytes = asset.text.len();
            assert!(bytes <= limits::SCREEN_FILE_BYTES_MAX, "{}: {bytes} bytes", asset.end);
            let elsewhere = asset.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("//") && !elsewhere.contains("url("), "{} names another place", asset.end);
        }
    }
}
