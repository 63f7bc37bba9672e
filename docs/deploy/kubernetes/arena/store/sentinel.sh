#!/bin/sh
# A sentinel beside each server. It keeps what it knows in its file on the volume, so that after a stop of all pods the
# last primary is the primary again, and not the one of the first start.
set -eu
umask 077
me=$(hostname).store
password=$(cat /run/secrets/agon/store_password)
config=/data/sentinel/sentinel.conf
mkdir -p /data/sentinel
if [ ! -s "$config" ]; then
    cat > "$config.new" << END
port 26379
dir /data/sentinel
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $me
sentinel monitor votes store-0.store 6379 2
sentinel auth-pass votes $password
sentinel down-after-milliseconds votes 3000
sentinel failover-timeout votes 30000
sentinel parallel-syncs votes 1
END
    mv "$config.new" "$config"
fi
exec redis-server "$config" --sentinel
