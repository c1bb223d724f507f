# A grid of one CA, one host that serves and one user.
pkill -x godwitd || true
cd /home
san=subjectAltName=DNS:data.example.org
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /O=Grid/CN=CA -keyout ca.key -out ca.pem
hash=$(openssl x509 -in ca.pem -noout -hash)
mkdir -p /etc/grid-security/certificates /home/you/.globus /srv/grid/incoming
cp ca.pem "/etc/grid-security/certificates/$hash.0"
cat >"/etc/grid-security/certificates/$hash.signing_policy" <<'POLICY'
access_id_CA   X509   '/O=Grid/CN=CA'
pos_rights     globus CA:sign
cond_subjects  globus '"/O=Grid/*"'
POLICY
certify() {
    openssl req -newkey rsa:2048 -nodes -subj "$1" -addext "$san" -keyout "$3" -out request.pem
    openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out "$2"
    chmod 600 "$3"
}
certify /O=Grid/CN=data.example.org /etc/grid-security/hostcert.pem /etc/grid-security/hostkey.pem
certify /O=Grid/CN=You /home/you/.globus/usercert.pem /home/you/.globus/userkey.pem
echo '"/O=Grid/CN=You" you' >/etc/grid-security/grid-mapfile
chown -R you:you /home/you/.globus /srv/grid/incoming
godwitd --root /srv/grid --gsi >/home/grid.out 2>&1 </dev/null &
until grep -q '^listening on' /home/grid.out; do
    kill -0 $! || { cat /home/grid.out; exit 1; }
    sleep 0.05
done
