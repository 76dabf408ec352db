output "values" {
  description = "Values of the chart that win over values.yaml."
  value = {
    images   = { registry = local.registry }
    packages = { storeUrl = "s3://${aws_s3_bucket.packages.id}/${local.prefix}" }
    kafka    = { bootstrapServers = split(",", aws_msk_cluster.main.bootstrap_brokers_sasl_scram) }
    # S3's addresses change now and then: apply again, then upgrade the release.
    networkPolicy = {
      external = concat([
        aws_vpc.main.cidr_block,
        aws_eks_cluster.main.kubernetes_network_config[0].service_ipv4_cidr,
      ], aws_vpc_endpoint.s3.cidr_blocks)
    }
  }
}

output "registry" {
  description = "Where images are pushed."
  value       = local.registry
}

locals {
  registry = trimsuffix(aws_ecr_repository.images["gateway"].repository_url, "/headrace-gateway")
}
