# What the package puts below /etc.
mkdir /etc/godwit
cp "$(dirname "$0")/packaging/godwitd.toml" /etc/godwit/
