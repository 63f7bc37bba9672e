#!/bin/sh
# A server of the store: the primary, or a replica of the one that the sentinels name.
set -eu
umask 077
me=$(hostname).store
password=$(cat /run/secrets/agon/store_password)
primary=$(sh /scripts/primary.sh)
config=$(mktemp)
cat > "$config" << END
port 6379
dir /data
requirepass $password
masterauth $password
replica-announce-ip $me
appendonly yes
appendfsync always
aof-load-truncated yes
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 16mb
maxmemory-policy noeviction
save ""
repl-diskless-sync yes
END
if [ "$primary" != "$me" ]; then
    echo "replicaof $primary 6379" >> "$config"
fi
echo "$me starts; the primary is $primary"
exec redis-server "$config"
