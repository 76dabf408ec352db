# The S3 server that the cluster's tests keep packages in: one static program, which
# `make object-store` builds into the context. Not published.
FROM scratch
COPY versitygw /versitygw
USER 10001:10001
EXPOSE 7070
ENTRYPOINT ["/versitygw"]
