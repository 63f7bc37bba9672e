"""How the web UI shows a controller that it may speak for visitors.

The web UI sends the visitor's address in X-Forwarded-For, as every proxy does, and with it the proxy token in the
header below. Without the token a controller believes only the networks that its operator has named.
"""

PROXY_TOKEN_HEADER = "X-Agon-Proxy-Token"
