# Two servers of HTTPS and WebDAV at the grid of grid.sh, as two sites run them for their users.
cd /home
names=DNS:here.example,DNS:there.example
openssl req -newkey rsa:2048 -nodes -subj /O=Grid/CN=here.example -addext "subjectAltName=$names" \
    -keyout dav.key -out request.pem
openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
    -copy_extensions copy -out dav.pem
chmod 600 dav.key
# Tools of the web look for CAs among those of the system.
mkdir -p /etc/ssl/certs
cat ca.pem >>/etc/ssl/certs/ca-certificates.crt
for site in here:127.0.0.2 there:127.0.0.3; do
    name=${site%:*} address=${site#*:}
    echo "$address $name.example" >>/etc/hosts
    mkdir -p "/srv/$name/data"
    # The addresses are those of one machine: sites have others, and name none of them.
    godwitd --root "/srv/$name" --https "$address:443" --listen "$address:0" --privsep=false --gsi \
        --cert dav.pem --key dav.key --issue-tokens --allow-copy-host 127.0.0.0/8 \
        >"$name.out" 2>&1 </dev/null &
    until grep -q '^https on' "$name.out"; do
        kill -0 $! || { cat "$name.out"; exit 1; }
        sleep 0.05
    done
done
