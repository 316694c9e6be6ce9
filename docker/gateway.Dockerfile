# The gateway: HAProxy with its configuration, which the build checks. Build in the repository's
# root:
#   docker build -f docker/gateway.Dockerfile -t sqlenv-gateway .

FROM haproxy:3.0-alpine
WORKDIR /usr/local/etc/haproxy
COPY docker/haproxy.cfg docker/servers.cfg ./
RUN haproxy -c -f haproxy.cfg -f servers.cfg
USER haproxy
EXPOSE 8000 8404
CMD ["haproxy", "-f", "haproxy.cfg", "-f", "servers.cfg"]
