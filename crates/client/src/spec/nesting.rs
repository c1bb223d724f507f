//! Copies of a directory into itself.

use godwit_proto::{
    FtpPath,
    url::{Location, RemoteUrl},
};

/// A directory that is copied into itself has no end. Where a path begins at a home is not known
/// yet: of such a path and another it is asked again when it is.
pub(crate) fn check_nesting(sources: &[Location], destination: &Location) -> Result<(), String> {
    let Location::Remote(to) = destination else {
        return Ok(());
    };
    let parts = |url: &RemoteUrl| {
        let path = url.path.resolve(&FtpPath::root(), &FtpPath::root());
        let parts = path.as_bytes().split(|b| *b == b'/').map(<[u8]>::to_vec);
        let parts = parts.filter(|part| !part.is_empty());
        let home = url.home().unwrap_or_default().to_vec();
        std::iter::once(home).chain(parts).collect::<Vec<_>>()
    };
    for source in sources {
        if let Location::Remote(from) = source
            && (&from.host, from.port, &from.user) == (&to.host, to.port, &to.user)
            && parts(to).starts_with(&parts(from))
        {
            return Err(format!(
                "{destination} is {source} or below it: a directory cannot be copied into itself"
            ));
        }
    }
    Ok(())
}
