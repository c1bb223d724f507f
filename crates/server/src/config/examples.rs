//! What `--help` shows at its end.

pub(super) const EXAMPLES: &str = "\
Examples:
  Share a directory for reading, on every address, port 2811:
      godwitd --root /srv/data --anonymous ro
  A scratch server for tests on a free port; the port is printed:
      godwitd --listen 127.0.0.1:0 --root /tmp/scratch --anonymous rw
  Behind a firewall that forwards 192.0.2.7:50000-51000:
      godwitd --root /srv/data --anonymous ro --port-range 50000-51000 --data-address 192.0.2.7
  Take part in third-party transfers (data hosts other than the client's):
      godwitd --root /srv/data --anonymous rw --allow-foreign-data-hosts
  For users with passwords, over TLS with a certificate of your own:
      godwitd passwd /etc/godwit/passwords jo
      godwitd --root /srv/data --password-file /etc/godwit/passwords \\
          --cert host.pem --key hostkey.pem
  For users with bearer tokens of one issuer, over TLS:
      godwitd --root /srv/data --cert host.pem --key hostkey.pem \\
          --token-issuer https://issuer.example.org/=jwks.json \\
          --token-audience https://data.example.org
  For grid users only, by certificate and gridmap file as in /etc/grid-security:
      godwitd --root /srv/data --gsi
  The same with everything named:
      godwitd --root /srv/data --cert host.pem --key hostkey.pem --trusted-certs cas \\
          --gridmap grid-mapfile
  For clients of sshftp://, without further setup: sshd authenticates users and starts one godwitd
  for each session. In the PATH it is found as it is. To serve one directory, put this line into a
  script at /etc/grid-security/sshftp or ~/.globus/sshftp, or, for users who may do nothing else,
  into sshd_config behind ForceCommand:
      godwitd --ssh --root /srv/data
  The same files for browsers, curl, davix and rclone, over HTTPS and WebDAV:
      godwitd --root /srv/data --password-file /etc/godwit/passwords \\
          --cert host.pem --key hostkey.pem --https 0.0.0.0:443
  The same files as buckets of S3; the command prints the key's secret:
      godwitd s3-key /etc/godwit/s3-keys jo
      godwitd --root /srv/data --s3-keys /etc/godwit/s3-keys \\
          --cert host.pem --key hostkey.pem --s3 0.0.0.0:9000
  Settings from a file; flags override it, SIGHUP reads it again:
      godwitd --config /etc/godwitd.toml

The file is TOML; its keys are the long flags:
      root = \"/srv/data\"
      anonymous = \"ro\"
      listen = [\"0.0.0.0:2811\", \"[::]:2811\"]
      port-range = \"50000-51000\"

Convert the configuration of a globus-gridftp-server, with notes on what you have to decide:
      godwitd --import-gct-config /etc/gridftp.conf > /etc/godwitd.toml

Signals: SIGTERM and SIGINT let running transfers end (see --drain), a second one aborts them;
SIGHUP reads --config again, for new sessions; SIGUSR1 logs the sessions and what they do.
Log: standard error, one line per event; GODWITD_LOG=debug shows more.
Exit status: 0 ended by a signal; 2 wrong usage or settings; 4 failed (address in use, root
missing).";
