# The gateway: HAProxy with its configuration, which the build checks. Build in the repository's
# root:
#   docker build -f docker/gateway.Dockerfile -t sqlenv-gateway .

FROM haproxy:3.0-alpine
COPY docker/haproxy.cfg /usr/local/etc/haproxy/haproxy.cfg
RUN haproxy -c -f /usr/local/etc/haproxy/haproxy.cfg
USER haproxy
EXPOSE 8000 8404
